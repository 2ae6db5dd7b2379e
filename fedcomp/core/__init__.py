"""What all rooms share: types, the compensated update, the encode context, checks, call texts and random streams."""
