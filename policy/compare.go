package policy

// Change is one difference between two versions of a policy.
type Change struct {
	Operation, Field, Old, New string
	ForNew, ForExisting        string
}

// Compare lists what changes from old to new.
func Compare(old, new *Policy) []Change { return nil }

// CheckSuccessor lists what keeps new from following old.
func CheckSuccessor(old, new *Policy) []Finding { return nil }
