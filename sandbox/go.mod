module github.com/elastic-ai/elastic/sandbox

go 1.26.0
