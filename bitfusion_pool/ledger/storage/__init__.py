"""The ledger's SQLite file: tables, transactions, the stored inventory."""
