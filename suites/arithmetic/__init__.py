"""Made arithmetic: questions in gsm8k's format, and a small model trained to answer them."""
