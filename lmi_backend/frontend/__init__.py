"""The HTTP front end, beside the server: OpenAI's, LMI's, SageMaker's and other clients' paths."""
