module github.com/elastic-ai/elastic

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.2 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	pgregory.net/rapid v1.2.0 // indirect
)
