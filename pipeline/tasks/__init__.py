"""The tasks that a pre-trained model is judged by."""
