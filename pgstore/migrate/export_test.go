package migrate

// For tests that bring migrations of their own.
var (
	UpFiles      = up
	PendingFiles = pending
	AllFiles     = all
	Files        = files
)
