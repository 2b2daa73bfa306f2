-- The errors of a job, with room for one more: of a job that fails again and again the first ten and the newest forty stay, and
-- between them the number of those left out.
CASE
    WHEN jsonb_typeof({errors}) <> 'array' OR jsonb_array_length({errors}) < 50 THEN {errors}
    WHEN {errors} -> 10 ? 'left_out' THEN jsonb_set({errors} - 11, '{10,left_out}', to_jsonb(({errors} #>> '{10,left_out}')::int + 1))
    ELSE jsonb_set({errors}, '{10}', '{"left_out": 1}')
END
