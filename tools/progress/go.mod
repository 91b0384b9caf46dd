module github.com/elastic-ai/elastic/tools/progress

go 1.26.0
