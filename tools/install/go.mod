module github.com/elastic-ai/elastic/tools/install

go 1.26.0
