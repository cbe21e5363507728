"""List and watch: caches kept equal to what the API server holds, and the work queue that changes fill."""
