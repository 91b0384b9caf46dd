// Package v1alpha1 holds the configuration files that Elastic's programs read,
// in the group elasticai.io.
//
// A file names its kind, and every field has a default: an empty file is valid.
//
//	apiVersion: elasticai.io/v1alpha1
//	kind: QueueConfiguration
//	metrics:
//	  bindAddress: 127.0.0.1:8080
//
// Words: docs/design/glossary.md.
package v1alpha1
