"""Arrays of elements in the memory of a device, and how other libraries see them."""
