"""What we believe: pure steps on a frozen state, and the loop that runs them."""
