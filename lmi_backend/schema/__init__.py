"""What clients write and read: wire formats to GenerateRequest, and Delta to named outputs."""
