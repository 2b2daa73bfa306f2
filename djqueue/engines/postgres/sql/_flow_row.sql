-- A flow with its parts counted in, and with the ends that are not added up yet, in the order of the fields of Flow. FROM follows.
    flow.id, flow.kind, flow.name, flow.on_failure, flow.whole_id, flow.is_open, sums.total, sums.completed, sums.cancelled, sums.discarded,
    flow.inserted_at, flow.failed_at, flow.finished_at, flow.meta::text, flow.unique_key
