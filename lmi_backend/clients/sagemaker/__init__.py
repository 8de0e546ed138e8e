"""AWS's libraries, which call SageMaker's own service."""
