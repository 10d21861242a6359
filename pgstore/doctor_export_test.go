package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// For tests of what is told about a database.
var (
	Examine          = examine
	Refuse           = refuse
	DurabilityOf     = durability
	InstalledVersion = installedVersion
	Grants           = grants
	FiguresOf        = figures
	CronJob          = cronJob
	CronCommand      = cronCommand
	CronSchedule     = cronSchedule
	InstallCronOn    = installCron
	RemoveCronOn     = removeCron
	CronStatusOf     = cronStatus
)

// ExamineStrictly remarks upon the least of everything that is measured.
func ExamineStrictly(ctx context.Context, conn *pgx.Conn, schema string) ([]Finding, error) {
	return examineBy(ctx, conn, schema, bounds{skew: -1 << 40, deadRatio: -1, lockTable: 1 << 40})
}
