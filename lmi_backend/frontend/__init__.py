"""The HTTP front end, next to the server: OpenAI's, LMI's, SageMaker's and other clients' paths."""
