package policy

// Code names a kind of finding. A code never changes its meaning, and a
// retired one is not used again: scripts and dashboards match on it.
type Code string

// Faults of the policy as a whole.
const (
	// CodeVersionMissing: no version, or zero.
	CodeVersionMissing Code = "version-missing"
	// CodeOperationsMissing: a policy without operations guards nothing.
	CodeOperationsMissing Code = "operations-missing"
	// CodeOperationsUnsorted: a literal whose operations are out of order.
	CodeOperationsUnsorted Code = "operations-unsorted"
	// CodeOperationDuplicate: two operations of one name.
	CodeOperationDuplicate Code = "operation-duplicate"
	// CodeFamilyDiffers: operations that share keys read them differently.
	CodeFamilyDiffers Code = "family-differs"
	// CodeTextInvalid: the policy has no normal form (text that is not UTF-8).
	CodeTextInvalid Code = "text-invalid"
)

// Faults of an operation's name, routes, scope and key.
const (
	// CodeNameInvalid: a name of an operation, family, gate or retrier that
	// would not fit in a label or a path.
	CodeNameInvalid Code = "name-invalid"
	// CodeRenamedFrom: renamed_from names itself, a living operation, or one
	// that another operation claims too.
	CodeRenamedFrom Code = "renamed-from"
	// CodeMatchInvalid: not a net/http ServeMux pattern.
	CodeMatchInvalid Code = "match-invalid"
	// CodeMatchMethod: a pattern without method, or with one that is not guarded.
	CodeMatchMethod Code = "match-method"
	// CodeMatchConflict: two patterns match the same request and neither is the
	// more specific.
	CodeMatchConflict Code = "match-conflict"
	// CodeScopeMissing: no principal, so that one caller's key would answer
	// another's.
	CodeScopeMissing Code = "scope-missing"
	// CodePrincipalInvalid: a principal rule that cannot be followed.
	CodePrincipalInvalid Code = "principal-invalid"
	// CodePrincipalCredential: the principal is a credential, which changes
	// between retries.
	CodePrincipalCredential Code = "principal-credential"
	// CodePrincipalAnonymous: all callers share their keys.
	CodePrincipalAnonymous Code = "principal-anonymous"
	// CodeKeyInvalid: a key header or key format that does not exist.
	CodeKeyInvalid Code = "key-invalid"
	// CodeFingerprintInvalid: a path, default or header of the fingerprint that
	// cannot be read.
	CodeFingerprintInvalid Code = "fingerprint-invalid"
	// CodeFingerprintCredential: the fingerprint covers a credential.
	CodeFingerprintCredential Code = "fingerprint-credential"
	// CodeResourceInvalid: a resource template that cannot be filled in from
	// every pattern.
	CodeResourceInvalid Code = "resource-invalid"
)

// Faults of an operation's lifetimes.
const (
	// CodeDurationNegative: a duration below zero.
	CodeDurationNegative Code = "duration-negative"
	// CodeDurationZero: a zero where something must take time.
	CodeDurationZero Code = "duration-zero"
	// CodeDurationTooLong: longer than [MaxLifetime].
	CodeDurationTooLong Code = "duration-too-long"
	// CodeRetrierInvalid: a retrier without name, named twice, inside nobody, or
	// inside itself.
	CodeRetrierInvalid Code = "retrier-invalid"
	// CodeTTLZero: the formula's terms are all zero.
	CodeTTLZero Code = "ttl-zero"
	// CodeProtectBelowTTL: protect is shorter than the TTL and so has no effect.
	CodeProtectBelowTTL Code = "protect-below-ttl"
	// CodeReplayBeyondHorizon: a response kept longer than its record.
	CodeReplayBeyondHorizon Code = "replay-beyond-horizon"
	// CodeLeaseBeyondHorizon: a lease as long as the memory: the two are
	// probably swapped.
	CodeLeaseBeyondHorizon Code = "lease-beyond-horizon"
	// CodeLeaseLong: a lease far longer than the work it covers.
	CodeLeaseLong Code = "lease-long"
	// CodeWaitLong: duplicates wait longer than the work may take.
	CodeWaitLong Code = "wait-long"
)

// Faults of an operation's answers, limits and other rules.
const (
	// CodeRedispatchWindow: the window is shut before the first attempt is over.
	CodeRedispatchWindow Code = "redispatch-window"
	// CodeHoldNeedsOperator: unknown outcomes are held, and nothing resolves them.
	CodeHoldNeedsOperator Code = "hold-needs-operator"
	// CodeKeysSpent: keys whose first answer was ambiguous never run again.
	CodeKeysSpent Code = "keys-spent"
	// CodeStatusInvalid: a status outside 100 to 599, or in two lists.
	CodeStatusInvalid Code = "status-invalid"
	// CodeStatusSuccess: a success that is said to have had no effect.
	CodeStatusSuccess Code = "status-success"
	// CodeValueInvalid: a word that the field does not know.
	CodeValueInvalid Code = "value-invalid"
	// CodeSeeOtherNeedsResource: a redirect with nowhere to go.
	CodeSeeOtherNeedsResource Code = "see-other-needs-resource"
	// CodeLimitRange: a limit outside its range.
	CodeLimitRange Code = "limit-range"
	// CodeVolumeInvalid: a volume that is no rate.
	CodeVolumeInvalid Code = "volume-invalid"
	// CodeGateInvalid: a gate without time, or named twice.
	CodeGateInvalid Code = "gate-invalid"
	// CodeAcceptUnknown: a danger that nobody knows by that name.
	CodeAcceptUnknown Code = "accept-unknown"
)

// Faults of a policy as the successor of another ([CheckSuccessor]).
const (
	// CodeVersionReused: one version number with two contents.
	CodeVersionReused Code = "version-reused"
	// CodeVersionLower: a version below its predecessor's.
	CodeVersionLower Code = "version-lower"
	// CodeForgetsKeys: existing records would no longer be found.
	CodeForgetsKeys Code = "forgets-keys"
	// CodeOperationRemoved: an operation is gone and nobody took its place.
	CodeOperationRemoved Code = "operation-removed"
	// CodeRenamedFromUnknown: renamed_from names what the predecessor lacks.
	CodeRenamedFromUnknown Code = "renamed-from-unknown"
)

// Dangers that an operation may accept by name.
const (
	// AcceptUnresolvedNeedsOperator permits on_unknown: hold without a resolver.
	AcceptUnresolvedNeedsOperator = "unresolved-needs-operator"
	// AcceptMayLoseClaims permits a store that can lose what it acknowledged.
	AcceptMayLoseClaims = "may-lose-acknowledged-claims"
)

// Dangers lists every name that accept knows.
func Dangers() []string {
	return []string{AcceptMayLoseClaims, AcceptUnresolvedNeedsOperator}
}
