"""The paper's theorems in numbers: every statement measured on random problems, and corrected where it has to be."""
