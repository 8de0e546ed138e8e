"""Read what runs a model on SageMaker today, and say what becomes of it here."""
