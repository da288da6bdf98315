"""Charts of plain records, independent of what the records mean: any package above may use them."""
