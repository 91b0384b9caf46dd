// Package clients tests Elastic with clients that others wrote, as they are.
package clients
