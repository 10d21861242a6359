package policyfile

// The types in this file are policy.yaml as it is written: the reader and
// the JSON Schema both follow them, so the two cannot drift apart. A pointer is
// a field that may be left out; what is left out gets its default in build.go. Names and meaning are those of contract.md §3.

type fileForm struct {
	Version    *uint32                  `json:"version" jsonschema:"minimum=1,maximum=4294967295" jsonschema_description:"Whole number; grows with every change; pinned in each record."`
	Operations map[string]operationForm `json:"operations" jsonschema_description:"The operations by name."`
}

type operationForm struct {
	RenamedFrom   *nameForm           `json:"renamed_from,omitempty" jsonschema_description:"The name under which this operation was known before; its records go on."`
	Match         []matchForm         `json:"match,omitempty" jsonschema_description:"net/http ServeMux patterns, each with its method."`
	Scope         *scopeForm          `json:"scope" jsonschema_description:"Who a key belongs to and where it counts."`
	Key           *keyForm            `json:"key,omitempty" jsonschema_description:"Where the key is and what it looks like."`
	Fingerprint   *fingerprintForm    `json:"fingerprint,omitempty" jsonschema_description:"What makes two requests the same."`
	TTL           *ttlForm            `json:"ttl" jsonschema_description:"ttl = max(client_retry_budget, broker_redelivery_window) + reconciliation_cadence + safety_margin"`
	Protect       *durationForm       `json:"protect,omitempty" jsonschema_description:"How long the effect itself can be repeated harmfully. Default: the ttl."`
	Replay        *durationForm       `json:"replay,omitempty" jsonschema_description:"How long the whole response is kept; 0s keeps none. Default: the ttl."`
	Deadline      *durationForm       `json:"deadline,omitempty" jsonschema_description:"How long a handler or upstream may take. Default: 60s."`
	Lease         *durationForm       `json:"lease,omitempty" jsonschema_description:"A claim not renewed for this long is abandoned. Default: 30s."`
	Wait          *durationForm       `json:"wait,omitempty" jsonschema_description:"How long a concurrent duplicate waits before 409. Default: 2s."`
	Ambiguous     []statusForm        `json:"ambiguous,omitempty" jsonschema_description:"Statuses that do not prove what happened. Default: 500, 502, 503, 504."`
	NoEffect      []noEffectForm      `json:"no_effect,omitempty" jsonschema_description:"Statuses given before acting: the same key may run again."`
	Settle        *durationForm       `json:"settle,omitempty" jsonschema_description:"How long after the deadline something sent may still take effect. Default: 30s."`
	OnUnknown     *onUnknownForm      `json:"on_unknown,omitempty" jsonschema_description:"What becomes of a record whose outcome nobody can tell. Default: close."`
	UnknownStatus *int                `json:"unknown_status,omitempty" jsonschema:"enum=503,enum=409" jsonschema_description:"The answer while an outcome is unknown. Default: 503."`
	LateAnswer    *string             `json:"late_answer,omitempty" jsonschema:"enum=status,enum=see-other" jsonschema_description:"How a settled request whose response is gone is answered. Default: status."`
	Dispatch      *string             `json:"dispatch,omitempty" jsonschema:"enum=implicit,enum=explicit" jsonschema_description:"Who marks the crossing to something remote. Default: implicit (the claim counts)."`
	Late          *string             `json:"late,omitempty" jsonschema:"enum=refuse,enum=count" jsonschema_description:"What happens to a key that comes after its record's time. Default: refuse."`
	MaxRequest    *sizeForm           `json:"max_request,omitempty" jsonschema_description:"A larger request is answered 413. Default: 1MiB, at most 64MiB."`
	MaxResponse   *sizeForm           `json:"max_response,omitempty" jsonschema_description:"A larger response is passed on but not kept. Default: 1MiB, at most 64MiB."`
	MaxUnresolved *int                `json:"max_unresolved,omitempty" jsonschema:"minimum=1,maximum=2147483647" jsonschema_description:"Live claims and held unknowns per principal. Default: 1000."`
	Volume        *volumeForm         `json:"volume,omitempty" jsonschema_description:"Expected new records per day, hour, minute or second, for cost and alerts."`
	Resource      *string             `json:"resource,omitempty" jsonschema:"pattern=^/([^/\\s\\\\][^\\s\\\\]*)?$" jsonschema_description:"Where the caller may look the result up; wildcards are those of match."`
	Durability    *string             `json:"durability,omitempty" jsonschema:"enum=A,enum=B,enum=C" jsonschema_description:"What an acknowledged claim must survive: A loss of a node, B loss of power, C neither. Default: B."`
	Ghosts        *ghostsForm         `json:"ghosts,omitempty" jsonschema_description:"How long deleted keys are remembered. This version: 0, not at all."`
	Closure       map[string]gateForm `json:"closure,omitempty" jsonschema_description:"Gates beside the horizon, by name, each with its time from the last dispatch."`
	Accept        []acceptForm        `json:"accept,omitempty" jsonschema_description:"Dangers taken on knowingly, by name."`
}

type scopeForm struct {
	Principal *principalForm `json:"principal" jsonschema_description:"The account that owes or is owed, never a credential."`
	Family    *nameForm      `json:"family,omitempty" jsonschema_description:"Operations in one family share keys. Default: the operation's name."`
}

type keyForm struct {
	Header   *headerForm `json:"header,omitempty" jsonschema_description:"Default: Idempotency-Key."`
	Required *bool       `json:"required,omitempty" jsonschema_description:"Whether a request without key is refused. Default: true."`
	Format   *string     `json:"format,omitempty" jsonschema:"enum=any,enum=uuid,enum=uuidv7,enum=ulid" jsonschema_description:"Default: any."`
}

type fingerprintForm struct {
	Fields   []pathForm          `json:"fields,omitempty" jsonschema_description:"JSONPath (RFC 9535); only these members define the operation. Default: all."`
	Ignore   []pathForm          `json:"ignore,omitempty" jsonschema_description:"JSONPath of volatile members."`
	Defaults map[string]jsonForm `json:"defaults,omitempty" jsonschema_description:"A missing member equals this value."`
	Headers  []headerForm        `json:"headers,omitempty" jsonschema_description:"Header fields that define the operation."`
}

type ttlForm struct {
	ClientRetryBudget      *inputForm `json:"client_retry_budget,omitempty" jsonschema_description:"How long callers go on retrying."`
	BrokerRedeliveryWindow *inputForm `json:"broker_redelivery_window,omitempty" jsonschema_description:"How late a broker may deliver again."`
	ReconciliationCadence  *inputForm `json:"reconciliation_cadence,omitempty" jsonschema_description:"How often both sides are compared."`
	SafetyMargin           *inputForm `json:"safety_margin,omitempty" jsonschema_description:"What is added to be safe."`
}

// sourcedForm is an input with who says so.
type sourcedForm struct {
	Value  *durationForm `json:"value" jsonschema_description:"The input's length."`
	Source *string       `json:"source,omitempty" jsonschema:"minLength=1" jsonschema_description:"Who says so."`
}

// retrierForm is one party that repeats a request.
type retrierForm struct {
	Name   *nameForm     `json:"name" jsonschema_description:"The retrier's name."`
	Value  *durationForm `json:"value" jsonschema_description:"How long after the first try it goes on."`
	Inside *nameForm     `json:"inside,omitempty" jsonschema_description:"The retrier within whose every attempt this one runs."`
}

// redispatchForm is on_unknown with a window.
type redispatchForm struct {
	Within *durationForm `json:"redispatch_within" jsonschema_description:"From the first dispatch, inside downstream's own dedupe window."`
}
