package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/counterfoil/counterfoil/cmd/internal/config"
)

// loadConfig reads the configuration that the flags name. Where there is no
// file and none was named, the environment alone may be enough.
func (a *app) loadConfig() (*config.Config, error) {
	path := a.configPath
	if path == config.DefaultFile {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if c, err := config.Load("", a.LookupEnv); err == nil {
				return c, nil
			}
		}
	}
	c, err := config.Load(path, a.LookupEnv)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &usageError{&hintedError{
			fmt.Errorf("there is no configuration at %s", path),
			`Write --config FILE where it lies elsewhere, or make one with these two lines:
  upstream: http://127.0.0.1:9000   # the service to guard
  policy: policy.yaml               # policy commands also take --policy FILE alone`,
		}}
	}
	return nil, unreadable(err)
}
