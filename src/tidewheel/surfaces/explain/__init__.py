"""`tidewheel explain`: what a query reads, as text and as a drawing of the key × time plane."""
