-- Lock an entry until the end of the transaction.
-- Params: id bigint.
SELECT id FROM djqueue_cronentry WHERE id = %(id)s FOR UPDATE
