package cli

import (
	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// maxKeys bounds one call of key new, so that a slip of the finger ends.
const maxKeys = 1_000_000

func (a *app) keyCommand() *cobra.Command {
	count := 1
	create := &cobra.Command{
		Use:   "new",
		Short: "Make keys: UUIDv7, from a cryptographic source",
		Long: `Makes idempotency keys. A UUIDv7 says when it was made, so that a key whose
record is long gone can be told from one that was never seen.

One key names one intent: retries repeat the key, a new intent takes a new one.`,
		Example: `  counterfoil key new
  curl -X POST -H "Idempotency-Key: $(counterfoil key new)" …`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if count < 1 || count > maxKeys {
				return usagef("--count %d is out of range; write 1 to %d", count, maxKeys)
			}
			type item struct {
				Key string `json:"key"`
			}
			list := make([]item, count)
			for i := range list {
				key, err := uuid.NewV7()
				if err != nil {
					return err
				}
				list[i].Key = key.String()
			}
			if a.out.json {
				return items(a.out, list)
			}
			for _, i := range list {
				a.out.line(i.Key)
			}
			return a.out.err
		},
	}
	create.Flags().IntVar(&count, "count", 1, "how many keys")
	return group("key", "Make idempotency keys", "  counterfoil key new --count 3", create)
}
