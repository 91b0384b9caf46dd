module github.com/elastic-ai/elastic/tools/platforms

go 1.26.0
