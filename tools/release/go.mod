module github.com/elastic-ai/elastic/tools/release

go 1.26.0
