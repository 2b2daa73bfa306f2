-- Flows that fail for the first time and are to cancel what is left of them: the event does it after the commit.
cancelling AS (
    INSERT INTO djqueue_flowevent (kind, subject_id)
    SELECT 'cancel', id FROM {failing} WHERE is_failing AND on_failure = 'cancel'
    RETURNING id
)
