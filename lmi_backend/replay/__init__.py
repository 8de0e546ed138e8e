"""Send recorded requests to a server, and tell where its answers differ from the recorded ones."""
