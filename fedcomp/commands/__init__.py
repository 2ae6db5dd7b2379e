"""The subcommands of `fedcomp` that need nothing but the library: a file for each, with its `main`."""
