"""History: which values are the same variable, and which uncertain conditions rows have passed.

A column of a result carries a mark, as JSON in the metadata of its table. It has an id; conditions of earlier queries
are texts over such ids. A further query includes these conditions, so its probability is the joint one.

A table with a key marks its columns with the table that they belong to. If two rows of such a table are in one row of
a join or a result, they are one variable if their keys are equal. So a condition is split by which keys are equal:
its parts exclude one another, and in each part columns of equal rows are written as one.
"""
