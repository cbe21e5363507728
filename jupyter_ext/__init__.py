"""What users and admins of notebooks see of the pool: the size picker of the notebook forms."""
