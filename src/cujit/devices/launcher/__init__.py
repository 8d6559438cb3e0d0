"""The launcher: machine code, made for each shape of signature, that reads a call's arguments and starts the kernel."""
