package policyfile

import "reflect"

// What the schema test needs of the form.

type FileForm = fileForm

const (
	VolumePattern    = volumePattern
	PrincipalPattern = principalPattern
)

// Leaves are the types of the form that read themselves, by name.
func Leaves() map[string]reflect.Type {
	return map[string]reflect.Type{
		"duration":  reflect.TypeFor[durationForm](),
		"size":      reflect.TypeFor[sizeForm](),
		"volume":    reflect.TypeFor[volumeForm](),
		"principal": reflect.TypeFor[principalForm](),
		"onUnknown": reflect.TypeFor[onUnknownForm](),
		"input":     reflect.TypeFor[inputForm](),
		"gate":      reflect.TypeFor[gateForm](),
		"ghosts":    reflect.TypeFor[ghostsForm](),
		"status":    reflect.TypeFor[statusForm](),
		"noEffect":  reflect.TypeFor[noEffectForm](),
		"accept":    reflect.TypeFor[acceptForm](),
		"match":     reflect.TypeFor[matchForm](),
		"header":    reflect.TypeFor[headerForm](),
		"name":      reflect.TypeFor[nameForm](),
		"path":      reflect.TypeFor[pathForm](),
		"json":      reflect.TypeFor[jsonForm](),
	}
}

// Forms of the leaves that are mappings or lists in the file.
func Sourced() any    { return &sourcedForm{} }
func Redispatch() any { return &redispatchForm{} }
func Retrier() any    { return &retrierForm{} }

var Suggest = suggest
