//go:build tools

// Package modules pins helm for the tests of the chart in go.mod; nothing runs it.
package modules

import _ "helm.sh/helm/v3/cmd/helm"
