"""What crosses the network: frames, the codecs they name, and the layout of the model behind them.  See FORMAT.md."""
