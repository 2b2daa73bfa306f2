-- What the DELETE of an ack returns: the job, and its outcome.
    RETURNING
        job.*,
        o.state AS outcome_state, o.result AS outcome_result, o.error AS outcome_error, o.is_spent,
        o.at - o.started_ago * interval '1 microsecond' AS outcome_started_at,
        o.at - o.finished_ago * interval '1 microsecond' AS outcome_finished_at
)
