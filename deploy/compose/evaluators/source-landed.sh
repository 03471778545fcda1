#!/usr/bin/env bash
# Whether a source has landed: a key of Redis says how many rows. The question is JSON on standard input, the answer JSON
# on standard output (docs/evaluators.md).
set -euo pipefail

question=$(cat)
key=$(jq --exit-status --raw-output '.config.key' <<<"$question") || exit 2
least=$(jq --raw-output '.config.minRows // 1' <<<"$question")

if ! found=$(redis-cli -h "${REDIS_HOST:-127.0.0.1}" -p "${REDIS_PORT:-6379}" --raw GET "$key") || [[ $found == *"Could not connect"* ]]; then
    jq --null-input '{status: "ERROR", reason: "Redis does not answer", failureCategory: "TRANSIENT"}'
    exit 0
fi
rows=$(jq '.rows // 0' <<<"${found:-null}")
jq --null-input --argjson rows "$rows" --argjson least "$least" --arg key "$key" \
    'if $rows >= $least then {status: "PASS", value: $rows} else {status: "FAIL", value: $rows, reason: "\($key) says \($rows) rows"} end'
