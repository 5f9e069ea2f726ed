"""A finished run as a model: which one is best, what it says about pictures, how right it is, and export."""
