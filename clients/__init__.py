"""The ClientApp: local training and the device it runs on."""
