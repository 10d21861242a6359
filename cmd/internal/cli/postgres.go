package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterfoil/counterfoil"
	"github.com/counterfoil/counterfoil/cmd/internal/config"
	"github.com/counterfoil/counterfoil/cmd/internal/wire"
	"github.com/counterfoil/counterfoil/policy"
)

// postgres loads the configuration and wants its store to be PostgreSQL.
func (a *app) postgres(command string) (*config.Config, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if c.Store.Kind != config.StorePostgres {
		return nil, usagef("%s is for a PostgreSQL store, and store: is %s; a %s store needs none", command, c.Store, c.Store.Kind)
	}
	return c, nil
}

// migrated is a step as programs read it.
type migrated struct {
	Version int64   `json:"version"`
	Name    string  `json:"name"`
	Took    float64 `json:"took_seconds"`
}

func (a *app) migrateCommand() *cobra.Command {
	var dry bool
	var partitions int
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables of a PostgreSQL store, or bring them up to date",
		Long: `Makes the tables that store: names, or brings them up to this version. It may be
run again, and by several at once. Nothing is ever dropped. It needs a direct
connection, not one through PgBouncer, as a role that may make tables.

--dry-run prints the SQL that it would run, for somebody else to run.`,
		Example: `  counterfoil store migrate
  counterfoil store migrate --dry-run > counterfoil.sql`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.postgres("store migrate")
			if err != nil {
				return err
			}
			if dry {
				sql, err := wire.MigrationSQL(cmd.Context(), cfg.Store, partitions)
				if err != nil {
					return err
				}
				a.out.write(sql)
				return a.out.err
			}
			end := a.progress("migrating")
			steps, err := wire.Migrate(cmd.Context(), cfg.Store, partitions)
			end()
			if err != nil {
				return err
			}
			if a.out.json {
				list := make([]migrated, len(steps))
				for i, s := range steps {
					list[i] = migrated{s.Version, s.Name, s.Took.Seconds()}
				}
				return items(a.out, list)
			}
			if len(steps) == 0 {
				a.out.line(fmt.Sprintf("nothing to do: schema %s is at version %d", cfg.Store.Schema, wire.SchemaVersion))
			}
			for _, s := range steps {
				a.out.line(fmt.Sprintf("%s %s in %s", a.out.paint.green("done"), s.Name, s.Took.Round(time.Millisecond)))
			}
			return a.out.err
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "print the SQL and run nothing")
	c.Flags().IntVar(&partitions, "partitions", 0, "split the records into this `NUMBER` of hash partitions, when the tables are first made (0: not split)")
	return c
}

// cronView is the state of the job as programs read it.
type cronView struct {
	Job         string    `json:"job"`
	Schedule    string    `json:"schedule"`
	Command     string    `json:"command"`
	Active      bool      `json:"active"`
	LastRun     time.Time `json:"last_run,omitzero"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	Status      string    `json:"status"`
	Message     string    `json:"message"`
}

func (a *app) pgCronCommand() *cobra.Command {
	var every string
	install := &cobra.Command{
		Use:   "install",
		Short: "Have pg_cron sweep inside the database",
		Long: `Registers the sweep with pg_cron, an extension of PostgreSQL that runs jobs: the
same rules as counterfoil sweep, without anybody outside. Run again, it changes
the schedule. serve may go on sweeping beside it.`,
		Example: "  counterfoil store pg-cron install --every 15m",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := policy.ParseDuration(every)
			if err != nil {
				return usagef("--every: %w", err)
			}
			return a.withPostgres(cmd.Context(), "store pg-cron", func(s *wire.Postgres) error {
				if err := s.InstallCron(cmd.Context(), d, wire.Grace(s.Info())); err != nil {
					return err
				}
				return a.printCron(cmd.Context(), s)
			})
		},
	}
	install.Flags().StringVar(&every, "every", "15m", "`DURATION` between two sweeps: minutes that divide an hour, hours that divide a day, or 24h")
	remove := &cobra.Command{
		Use:     "remove",
		Short:   "Take the sweep away from pg_cron",
		Example: "  counterfoil store pg-cron remove",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPostgres(cmd.Context(), "store pg-cron", func(s *wire.Postgres) error {
				if err := s.RemoveCron(cmd.Context()); err != nil {
					return err
				}
				return a.printCron(cmd.Context(), s)
			})
		},
	}
	status := &cobra.Command{
		Use:     "status",
		Short:   "Show the job of pg_cron and its last run",
		Example: "  counterfoil store pg-cron status",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPostgres(cmd.Context(), "store pg-cron", func(s *wire.Postgres) error { return a.printCron(cmd.Context(), s) })
		},
	}
	return group("pg-cron", "Sweep inside PostgreSQL, by its extension pg_cron", "  counterfoil store pg-cron install --every 15m", install, remove, status)
}

func (a *app) withPostgres(ctx context.Context, command string, do func(*wire.Postgres) error) error {
	c, err := a.postgres(command)
	if err != nil {
		return err
	}
	s, err := wire.OpenPostgres(ctx, c, slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	err = do(s)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

func (a *app) printCron(ctx context.Context, s *wire.Postgres) error {
	st, err := s.Cron(ctx)
	if err != nil {
		return err
	}
	if a.out.json {
		list := []cronView{}
		if st.Job != "" {
			list = append(list, cronView{st.Job, st.Schedule, st.Command, st.Active, st.LastRun, st.LastSuccess, st.Status, st.Message})
		}
		return items(a.out, list)
	}
	if st.Job == "" {
		a.out.line("pg_cron has no job for this schema")
		return a.out.err
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return counterfoil.Instant(t).Format(time.RFC3339)
	}
	active := "yes"
	if !st.Active {
		active = "no"
	}
	a.out.columns("", [][]cell{
		{plain("job"), plain(st.Job)},
		{plain("schedule"), plain(st.Schedule)},
		{plain("runs"), plain(st.Command)},
		{plain("active"), plain(active)},
		{plain("last run"), plain(at(st.LastRun))},
		{plain("last success"), plain(at(st.LastSuccess))},
		{plain("said"), plain(st.Status + " " + st.Message)},
	})
	return a.out.err
}
