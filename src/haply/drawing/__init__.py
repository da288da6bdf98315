"""Charts of plain records, which know nothing of what they are about: any room above may draw."""
