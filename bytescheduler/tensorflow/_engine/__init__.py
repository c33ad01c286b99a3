"""The engine in TensorFlow's words: dtypes, and a session whose operations TensorFlow runs."""
