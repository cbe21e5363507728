"""`bitfusion health`: checks of this machine, of the pool and of the network between them."""
