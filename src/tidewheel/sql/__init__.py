"""SQL over tables, and tables as Arrow datasets: what others ask is turned into bounds of ours, and every filter is applied exactly."""
