"""From an admin's list of GPU sizes to the forms that start notebooks."""
