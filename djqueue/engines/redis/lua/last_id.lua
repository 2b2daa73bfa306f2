-- needs: waiting walk
-- Say which id is the highest that there is. Returns: the id (0: there is none).
return ids_before(9007199254740992, 1)[1] or '0'
